// SPDX-License-Identifier: Apache-2.0
// Search in pages that are opened as files: browsers start no worker from a file, so that a frame takes its place.
// It answers the same calls: postMessage, onmessage, addEventListener and terminate.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      // What the script posts is for the page; what the page posts arrives in the frame as the event `message`.
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", {data});
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.load(url).then(() => {
        this.ready = true;
        this.waiting.forEach((data) => this.deliver(data));
      });
    }
    load(url) {
      const inner = this.frame.contentDocument;
      return new Promise((done, failed) => {
        const script = inner.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = done;
        script.onerror = failed;
        inner.body.appendChild(script);
      });
    }
    deliver(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", {data}));
    }
    postMessage(data) {
      if (this.ready) this.deliver(data);
      else this.waiting.push(data);
    }
    terminate() { this.frame.remove(); }
  };
}
