import { defineConfig } from "vitest/config"

/** The JSON result, which the Python side reads. */
const resultFile = process.env.TAILRACE_CONFORMANCE_RESULT ?? "conformance-result.json"

export default defineConfig({
  test: {
    include: ["conformance.test.ts"],
    reporters: ["json"],
    outputFile: { json: resultFile },
    // One file, tests in order: several of them measure time.
    fileParallelism: false,
    // The suite's own time limits are a few seconds, which a busy machine may exceed once.
    testTimeout: 60_000,
    retry: 1,
  },
})
