/**
 * Points the public Durable Streams conformance suite at one running server.
 *
 * The suite's own command line does not start, so it is called as a library.
 * The address comes in TAILRACE_CONFORMANCE_URL because vite overwrites BASE_URL.
 */
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.TAILRACE_CONFORMANCE_URL
if (!baseUrl) {
  throw new Error("set TAILRACE_CONFORMANCE_URL to the server's base address")
}

runConformanceTests({
  baseUrl,
  longPollTimeoutMs: Number(process.env.TAILRACE_CONFORMANCE_LONG_POLL_MS ?? "2000"),
  subscriptions: true,
})
