/** npm `@durable-streams/client`, unmodified. */
import assert from "node:assert/strict"
import { after, before, test } from "node:test"

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

import { assertSameText } from "./chat.mjs"
import { newPath, startNetwork, until } from "./network.mjs"

const JSON_TYPE = "application/json"
let network

before(async () => {
  network = await startNetwork()
})
after(() => network.close())

function newUrl() {
  return network.url + newPath()
}

/** A JSON stream of more than 3 MiB, written by an idempotent producer. */
async function writeNumbered(url, count) {
  const handle = await DurableStream.create({ url, contentType: JSON_TYPE })
  const errors = []
  const producer = new IdempotentProducer(handle, "writer", {
    onError: (error) => errors.push(error),
  })
  const filler = "x".repeat(300)
  for (let number = 0; number < count; number += 1) producer.append(JSON.stringify({ number, filler }))
  await producer.flush()
  await producer.detach()
  assert.deepEqual(errors, [])
  return handle
}

function numbersOf(items) {
  return items.map((item) => item.number)
}

function range(count) {
  return Array.from({ length: count }, (_, number) => number)
}

test("one request with live: false returns everything", async () => {
  const url = newUrl()
  await writeNumbered(url, 10_000)
  const response = await stream({ url, live: false, json: true })
  const items = await response.json()
  assert.equal(items.length, 10_000)
  assert.deepEqual(numbersOf(items), range(10_000))
  assert.equal(response.upToDate, true)
})

test("bytes and text of several MiB arrive whole", async () => {
  const bytes = new Uint8Array(3 << 20).map((_, at) => at % 251)
  const binary = await DurableStream.create({ url: newUrl(), contentType: "application/octet-stream" })
  for (let at = 0; at < bytes.length; at += 1 << 18) await binary.append(bytes.slice(at, at + (1 << 18)))
  const body = await (await stream({ url: binary.url, live: false })).body()
  assert.ok(Buffer.from(body).equals(Buffer.from(bytes)), `${body.length} bytes`)

  const text = "snowman \u2603 and \u{1f600}, ".repeat(100_000)
  const plain = await DurableStream.create({ url: newUrl(), contentType: "text/plain" })
  await plain.append(text)
  assertSameText(await (await stream({ url: plain.url, live: false })).text(), text)
})

// The client itself goes on after a reset connection of a long-poll, and after the server's end of
// an SSE connection. It reports a reset SSE connection to its user.
for (const live of ["sse", "long-poll"]) {
  test(`${live} goes on over many connections, without loss or repeat, until closure`, async () => {
    const url = newUrl()
    const handle = await writeNumbered(url, 5_000)
    const response = await stream({ url, live, json: true })
    const seen = []
    let done = false
    response.subscribeJson((batch) => {
      seen.push(...numbersOf(batch.items))
    })
    response.closed.then(() => {
      done = true
    })
    await until(() => seen.length === 5_000, "the catch-up")
    let next = 5_000
    for (let round = 0; round < 3; round += 1) {
      for (let at = 0; at < 20; at += 1) {
        await new DurableStream({ url, contentType: JSON_TYPE }).append(JSON.stringify({ number: next }))
        next += 1
      }
      await until(() => seen.length === next, "live messages")
      if (live === "long-poll") network.cut()
      const connections = network.count("live=sse")
      if (live === "sse") await until(() => network.count("live=sse") > connections, "another connection")
    }
    await handle.close({ body: JSON.stringify({ number: next }) })
    await until(() => done, "the end of a closed stream")
    assert.deepEqual(seen, range(next + 1))
  })
}

test("closure, conflicts and missing streams are reported", async () => {
  const url = newUrl()
  const handle = await DurableStream.create({ url, contentType: "text/plain" })
  await handle.append("a", { seq: "2" })
  await assert.rejects(handle.append("b", { seq: "1" }), { status: 409 })
  await handle.close()
  await assert.rejects(handle.append("c"), { status: 409 })
  assert.equal((await handle.head()).streamClosed, true)
  await handle.delete()
  await assert.rejects(stream({ url, live: false }), { status: 404 })
})
