/** A connection to the server under test that can be cut, as a network does. */
import net from "node:net"

export const serverUrl = process.env.TAILRACE_URL
if (!serverUrl) throw new Error("set TAILRACE_URL to the server's address")

/** Listen on a free port of loopback and forward every connection to the server. */
export async function startNetwork() {
  const { hostname, port, pathname } = new URL(serverUrl)
  const sockets = new Set()
  let received = ""
  const listener = net.createServer((near) => {
    const far = net.connect(Number(port), hostname)
    for (const [from, to] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(from)
      from.setNoDelay(true)
      from.on("error", () => to.destroy())
      from.on("close", () => {
        sockets.delete(from)
        to.destroy()
      })
      from.pipe(to)
    }
    near.on("data", (data) => {
      if (data.length < 4096) received += data.toString("latin1")
    })
  })
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${listener.address().port}${pathname.replace(/\/$/, "")}`,
    /** How often a text was in the small requests so far. */
    count: (text) => received.split(text).length - 1,
    /** Reset all open connections. */
    cut() {
      for (const socket of sockets) socket.resetAndDestroy()
    },
    async close() {
      this.cut()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

let streams = 0

/** The path of a stream that no other test uses. */
export function newPath() {
  streams += 1
  return `/v1/stream/ecosystem/${process.pid}/${streams}`
}

/** Wait until a condition holds; the test's own time limit ends it. */
export async function until(condition, what) {
  const deadline = Date.now() + 60_000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
