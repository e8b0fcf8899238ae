/** A chat backend, as an application has it: a fetch handler served over HTTP. */
import assert from "node:assert/strict"
import http from "node:http"
import { Readable } from "node:stream"

export async function serve(handler) {
  const server = http.createServer(async (request, response) => {
    const body = request.method === "GET" ? undefined : Buffer.concat(await request.toArray())
    const made = await handler(new URL(request.url, "http://localhost"), body && JSON.parse(body))
    response.writeHead(made.status, Object.fromEntries(made.headers))
    if (made.body) Readable.fromWeb(made.body).pipe(response)
    else response.end()
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((resolve) => server.close(resolve)),
  }
}

/** Compare long texts without printing them. */
export function assertSameText(actual, expected) {
  const same = actual === expected
  assert.ok(same, `${actual.length} characters instead of ${expected.length}: ${actual.slice(0, 80)}…`)
}

/** Pieces of a generation of more than 1 MiB, with pauses longer than an SSE connection of the test's server. */
export const DELTAS = Array.from({ length: 600 }, (_, at) => `${at} ${"word ".repeat(500)}`)

export async function* generate(pieces) {
  for (const [at, piece] of pieces.entries()) {
    if (at % 300 === 299) await new Promise((resolve) => setTimeout(resolve, 2500))
    yield piece
  }
}
