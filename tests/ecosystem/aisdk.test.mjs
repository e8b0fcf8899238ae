/** npm `@durable-streams/aisdk-transport`, unmodified, with the AI SDK's types of chunks. */
import { after, before, test } from "node:test"

import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import { readUIMessageStream } from "ai"

import { assertSameText, DELTAS, generate, serve } from "./chat.mjs"
import { newPath, serverUrl, startNetwork } from "./network.mjs"

const CHUNKS = [
  { type: "start", messageId: "m1" },
  { type: "text-start", id: "t1" },
  ...DELTAS.map((delta) => ({ type: "text-delta", id: "t1", delta })),
  { type: "text-end", id: "t1" },
  { type: "finish" },
]
let network
let backend
let readUrl

before(async () => {
  network = await startNetwork()
  backend = await serve((url) => {
    if (url.pathname !== "/api/chat") {
      return Response.json({ streamUrl: readUrl }, { headers: { Location: readUrl } })
    }
    const path = newPath()
    readUrl = network.url + path
    const stream = { writeUrl: serverUrl + path, readUrl }
    return toDurableStreamResponse({ source: generate(CHUNKS), stream })
  })
})
after(async () => {
  await backend.close()
  await network.close()
})

async function finalText(chunks) {
  let last
  for await (const message of readUIMessageStream({ stream: chunks })) last = message
  return last.parts.map((part) => part.text ?? "").join("")
}

test("a generation arrives whole, also over several connections and for a client that reconnects", async () => {
  const transport = createDurableChatTransport({ api: `${backend.url}/api/chat` })
  const chunks = await transport.sendMessages({
    trigger: "submit-message",
    chatId: "c1",
    messages: [],
  })
  assertSameText(await finalText(chunks), DELTAS.join(""))
  const again = await transport.reconnectToStream({ chatId: "c1" })
  assertSameText(await finalText(again), DELTAS.join(""))
})
