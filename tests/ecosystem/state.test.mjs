/** npm `@durable-streams/state`, unmodified, with `@tanstack/db`. */
import assert from "node:assert/strict"
import { after, before, test } from "node:test"

import { DurableStream } from "@durable-streams/client"
import { createStateSchema, MaterializedState } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"

import { newPath, startNetwork, until } from "./network.mjs"

const JSON_TYPE = "application/json"
const anything = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } }
const schema = createStateSchema({ users: { schema: anything, type: "user", primaryKey: "id" } })
let network

before(async () => {
  network = await startNetwork()
})
after(() => network.close())

async function writeUsers(url, count) {
  const stream = await DurableStream.create({ url, contentType: JSON_TYPE })
  const about = "y".repeat(400)
  const users = Array.from({ length: count }, (_, at) => ({ id: String(at), name: `n${at}`, about }))
  // More than 1 MiB in all. The client batches what is appended at once.
  await Promise.all(
    users.map((value) => stream.append(JSON.stringify(schema.users.insert({ value }))))
  )
  return stream
}

for (const live of ["sse", "long-poll"]) {
  test(`a database over a stream, ${live}: preload, changes, new connections`, async () => {
    const url = network.url + newPath()
    const stream = await writeUsers(url, 4_000)
    const db = createStreamDB({ streamOptions: { url, contentType: JSON_TYPE }, state: schema, live })
    await db.preload()
    assert.equal(db.collections.users.size, 4_000)
    await stream.append(JSON.stringify(schema.users.update({ value: { id: "7", name: "changed" } })))
    await until(() => db.collections.users.get("7").name === "changed", "an update")
    if (live === "long-poll") network.cut()
    const connections = network.count("live=sse")
    if (live === "sse") await until(() => network.count("live=sse") > connections, "another connection")
    await stream.append(JSON.stringify(schema.users.delete({ key: "8", oldValue: { id: "8" } })))
    await until(() => !db.collections.users.has("8"), "a deletion")
    assert.equal(db.collections.users.size, 3_999)
    db.close()
  })
}

test("materialized state from one read of everything", async () => {
  const url = network.url + newPath()
  const handle = await writeUsers(url, 4_000)
  const events = await (await handle.stream({ live: false, json: true })).json()
  const state = new MaterializedState()
  state.applyBatch(events)
  assert.equal(state.getType("user").size, 4_000)
})
