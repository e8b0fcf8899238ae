/** npm `@durable-streams/tanstack-ai-transport`, unmodified. */
import assert from "node:assert/strict"
import { after, before, test } from "node:test"

import {
  durableStreamConnection,
  materializeSnapshotFromDurableStream,
  toDurableChatSessionResponse,
} from "@durable-streams/tanstack-ai-transport"

import { assertSameText, DELTAS, generate, serve } from "./chat.mjs"
import { newPath, startNetwork, until } from "./network.mjs"

const ANSWER = [
  { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" },
  ...DELTAS.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta })),
  { type: "TEXT_MESSAGE_END", messageId: "a1" },
]
let network
let backend
let writeUrl

before(async () => {
  network = await startNetwork()
  writeUrl = network.url + newPath()
  backend = await serve((_, body) =>
    toDurableChatSessionResponse({
      stream: { writeUrl },
      newMessages: body.messages,
      responseStream: generate(ANSWER),
      mode: "await",
    })
  )
})
after(async () => {
  await backend.close()
  await network.close()
})

test("a session is written, read live, and materialized at once", async () => {
  const question = { id: "q1", role: "user", parts: [{ type: "text", content: "why?" }] }
  const sender = durableStreamConnection({ sendUrl: backend.url, readUrl: writeUrl })
  await sender.send([question])
  const { messages, offset } = await materializeSnapshotFromDurableStream({ readUrl: writeUrl })
  const texts = messages.map((message) => message.parts.map((part) => part.content).join(""))
  assert.deepEqual(
    messages.map((message) => message.id),
    ["q1", "a1"]
  )
  assertSameText(texts[0], "why?")
  assertSameText(texts[1], DELTAS.join(""))

  const stop = new AbortController()
  const seen = []
  const reader = durableStreamConnection({ sendUrl: backend.url, readUrl: writeUrl, initialOffset: offset })
  const reading = (async () => {
    for await (const chunk of reader.subscribe(stop.signal)) seen.push(chunk)
  })()
  await sender.send([{ ...question, id: "q2" }])
  await until(() => seen.length === 3 + ANSWER.length, "the second exchange")
  const deltas = seen.filter((chunk) => chunk.messageId === "a1" && chunk.delta)
  assertSameText(deltas.map((chunk) => chunk.delta).join(""), DELTAS.join(""))
  stop.abort()
  await reading.catch(() => {})
})
