// npm's @durable-streams/client under measurement: see benchmarks/clients/__init__.py.

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const QUEUED_MAX = 100_000
const [mode, work, url, text, example] = process.argv.slice(2)
const count = Number(text)
const message = JSON.parse(example)

const seconds = (began) => (performance.now() - began) / 1000
const numbered = (number) =>
  JSON.stringify({ ...message, id: String(number).padStart(6, "0") })

async function produce() {
  const errors = []
  const handle = new DurableStream({ url, contentType: "application/json" })
  const producer = new IdempotentProducer(handle, crypto.randomUUID(), {
    onError: (error) => errors.push(error),
  })
  const began = performance.now()
  for (let number = 0; number < count; number++) {
    producer.append(numbered(number))
    // It has no limit of its own to what may wait.
    if (number % 1000 === 999) await new Promise(setImmediate)
    if (number % QUEUED_MAX === QUEUED_MAX - 1) await producer.flush()
  }
  await producer.flush()
  const took = seconds(began)
  if (errors.length) throw errors[0]
  const note = `nothing holds it back: it is flushed every ${QUEUED_MAX} messages`
  return { messages: count, seconds: took, note }
}

// One after another, each waited for.
async function append() {
  const handle = new DurableStream({ url, contentType: "application/json", batching: false })
  const began = performance.now()
  for (let number = 0; number < count; number++) await handle.append(numbered(number))
  return { messages: count, seconds: seconds(began) }
}

async function read() {
  const began = performance.now()
  let messages = 0
  const response = await stream({ url, offset: "-1", live: true })
  for await (const _ of response.jsonStream()) messages++
  return { messages, seconds: seconds(began) }
}

// The clock starts with the first message.
async function follow() {
  const response = await stream({ url, offset: "-1", live: "sse" })
  process.stdout.write("ready\n")
  let messages = 0
  let began = 0
  for await (const _ of response.jsonStream()) {
    if (messages === 0) began = performance.now()
    messages++
  }
  return { messages, seconds: seconds(began) }
}

const works = { produce: mode === "append" ? append : produce, read, follow }
const before = process.cpuUsage()
const found = await works[work]()
const used = process.cpuUsage(before)
found.processor_seconds = (used.user + used.system) / 1e6
process.stdout.write(JSON.stringify(found) + "\n")
process.exit(0)
