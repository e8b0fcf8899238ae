/** npm `@durable-streams/y-durable-streams`, its provider and its server with compaction, unmodified. */
import { after, before, test } from "node:test"

import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import * as Y from "yjs"

import { assertSameText } from "./chat.mjs"
import { startNetwork, until } from "./network.mjs"

const COMPACTION_BYTES = 64 * 1024
let network
let server

before(async () => {
  network = await startNetwork()
  server = new YjsServer({
    port: 0,
    dsServerUrl: network.url,
    compactionThreshold: COMPACTION_BYTES,
  })
  await server.start()
})
after(async () => {
  await server.stop()
  await network.close()
})

async function open(docId, liveMode) {
  const doc = new Y.Doc()
  const provider = new YjsProvider({
    doc,
    baseUrl: `${server.url}/v1/yjs/test${process.pid}`,
    docId,
    liveMode,
    connect: false,
  })
  const errors = []
  provider.on("error", (error) => errors.push(error))
  await provider.connect()
  await until(() => provider.synced, "the first sync")
  return { doc, provider, errors, text: doc.getText("t"), close: () => provider.destroy() }
}

async function snapshotOf(docId) {
  const base = `${server.url}/v1/yjs/test${process.pid}/docs/${docId}`
  const response = await fetch(`${base}?offset=snapshot`, { redirect: "manual" })
  return new URL(response.headers.get("location"), base).searchParams.get("offset")
}

for (const liveMode of ["sse", "long-poll"]) {
  test(`two documents agree through compaction, ${liveMode}`, async () => {
    const docId = `doc-${liveMode}`
    const first = await open(docId, liveMode)
    const second = await open(docId, liveMode)
    let expected = ""
    for (let at = 0; at < 40; at += 1) {
      const piece = `${at}:${String.fromCharCode(97 + (at % 26)).repeat(30_000)}\n`
      first.text.insert(first.text.length, piece)
      expected += piece
      await until(() => second.text.length === expected.length, "an update at the other document")
    }
    await until(async () => (await snapshotOf(docId)) !== "-1", "a compaction")
    // A document that opens now reads the snapshot and the updates after it.
    const third = await open(docId, liveMode)
    await until(() => third.text.length === expected.length, "a document after compaction")
    assertSameText(third.text.toString(), expected)
    second.text.insert(0, "from the second\n")
    await until(() => third.text.toString().startsWith("from the second"), "an update after compaction")
    await until(() => first.text.length === third.text.length, "an update at the first document")
    assertSameText(first.text.toString(), third.text.toString())
    for (const opened of [first, second, third]) opened.close()
  })
}
