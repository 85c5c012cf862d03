// Browsers start no worker from a page of a folder (file://). There, search runs in a hidden frame instead.
// A message to the worker is an event of the frame's window, and its answers are events of the worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const worker = new URL(url, location)
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.target = frame.contentWindow
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = this.target.document.createElement("script")
          script.src = new URL(address, worker)
          script.onload = resolve
          script.onerror = () => reject(new Error(`cannot load ${address}`))
          this.target.document.body.append(script)
        })
      this.target.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve())
      this.target.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.loaded = load(worker)
    }

    postMessage(data) {
      this.loaded.then(() => this.target.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.target.frameElement.remove()
    }
  }
}
