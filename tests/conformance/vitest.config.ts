import { defineConfig } from "vitest/config"

/** Where the JSON result goes; the Python side reads it to judge the run. */
const resultFile = process.env.TAILRACE_CONFORMANCE_RESULT ?? "conformance-result.json"

export default defineConfig({
  test: {
    include: ["conformance.test.ts"],
    reporters: ["json"],
    outputFile: { json: resultFile },
    // Groups of protocol parts that Tailrace does not offer are not run at all.
    testNamePattern: /^(?!Fork - |Reserved subscription APIs)/,
    // One file, tests in order: several of them measure time.
    fileParallelism: false,
  },
})
