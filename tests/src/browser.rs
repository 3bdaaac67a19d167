//! A real Chromium (Debian's `chromium`), driven over a pipe with its own protocol: no port that others reach, and no crate for it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// Where it may be, beside what `STOKER_E2E_CHROMIUM` names.
const PLACES: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// What keeps it from asking anybody else for anything, and from needing a screen or rights.
const OPTIONS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A browser with one page. It ends with the value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: File,
    from: mpsc::Receiver<Value>,
    calls: u64,
    session: Option<String>,
    /// What it told without being asked.
    events: Vec<Value>,
    /// Holds its profile and pipes.
    _dir: TempDir,
}

impl Browser {
    /// The browser of this machine; `None` where there is none and nobody insists.
    ///
    /// # Errors
    /// Where there is none and this runs in CI, or the one that `STOKER_E2E_CHROMIUM` names is not there.
    pub fn find() -> Result<Option<PathBuf>> {
        if let Some(named) = std::env::var_os("STOKER_E2E_CHROMIUM") {
            let named = PathBuf::from(named);
            ensure!(named.exists(), "STOKER_E2E_CHROMIUM: there is no {}", named.display());
            return Ok(Some(named));
        }
        let found = PLACES.iter().map(PathBuf::from).find(|place| place.exists());
        let is_ci = std::env::var_os("CI").is_some();
        ensure!(found.is_some() || !is_ci, "no Chromium: install it (Debian's chromium), or name one in STOKER_E2E_CHROMIUM");
        Ok(found)
    }

    /// Starts it with an empty page.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(program: &Path) -> Result<Self> {
        let dir = TempDir::new()?;
        let pipes = [dir.path().join("to"), dir.path().join("from")];
        ensure!(Command::new("mkfifo").args(&pipes).status()?.success(), "no pipes in {}", dir.path().display());
        // Its protocol goes over the files 3 and 4, which a shell opens for it.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<\"$STOKER_TO\" 4>\"$STOKER_FROM\""]).arg(program).args(OPTIONS);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display())).arg("about:blank");
        command.env("STOKER_TO", &pipes[0]).env("STOKER_FROM", &pipes[1]).env("HOME", dir.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // Opening a pipe waits for its other end.
        let (opened, open) = mpsc::channel();
        std::thread::spawn(move || {
            let [to, from] = pipes;
            let _ = opened.send(File::options().write(true).open(to).and_then(|to| Ok((to, File::open(from)?))));
        });
        let (to, from) = open.recv_timeout(LONG).context("the shell opens its pipes in time")??;
        let (heard, hear) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if heard.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, to, from: hear, calls: 0, session: None, events: Vec::new(), _dir: dir };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attached = browser.call("Target.attachToTarget", &json!({ "targetId": page["targetId"], "flatten": true }))?;
        browser.session = Some(attached["sessionId"].as_str().context("a session")?.to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Calls its protocol.
    ///
    /// # Errors
    /// Where it answers with an error, or not in time.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let heard = self.from.recv_timeout(LONG).with_context(|| format!("{method}: no answer"))?;
            if heard["id"] != json!(self.calls) {
                self.events.push(heard);
                continue;
            }
            if let Some(error) = heard.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(heard["result"].clone());
        }
    }

    /// What a script gives, after its promise where it gives one.
    ///
    /// # Errors
    /// Where it throws.
    pub fn evaluate(&mut self, script: &str) -> Result<Value> {
        let asked = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &asked)?;
        if let Some(thrown) = result.get("exceptionDetails") {
            bail!("{}: {thrown}", script.get(..200).unwrap_or(script));
        }
        Ok(result["result"]["value"].take())
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Errors
    /// Where it does not load.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let opened = self.call("Page.navigate", &json!({ "url": url }))?;
        ensure!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.waits("document.readyState === 'complete'")
    }

    /// Waits until a script gives `true`.
    ///
    /// # Errors
    /// With what the page says, where it does not in time.
    pub fn waits(&mut self, script: &str) -> Result<()> {
        let begun = Instant::now();
        // While a page is left there is nothing to ask.
        while !matches!(self.evaluate(script), Ok(Value::Bool(true))) {
            if begun.elapsed() > LONG {
                bail!("not {script}, but {}", self.evaluate("location.href + ' ' + document.body.innerText")?);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Presses `Tab`, `Enter` or `Space`.
    ///
    /// # Errors
    /// Where it is another key.
    pub fn press(&mut self, key: &str) -> Result<()> {
        let (code, text, name) = match key {
            "Tab" => (9, "", "Tab"),
            "Enter" => (13, "\r", "Enter"),
            "Space" => (32, " ", " "),
            _ => bail!("the key {key} is not known here"),
        };
        for kind in [if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "keyUp"] {
            let text = if kind == "keyUp" { "" } else { text };
            let pressed = json!({ "type": kind, "key": name, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", &pressed)?;
        }
        Ok(())
    }

    /// Types a text where the focus is.
    ///
    /// # Errors
    /// Where the browser is gone.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", &json!({ "text": text })).map(drop)
    }

    /// Makes the page so large, and dark or light.
    ///
    /// # Errors
    /// Where the browser is gone.
    pub fn look(&mut self, (width, height): (u32, u32), scheme: &str) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &scheme).map(drop)
    }

    /// A picture of what is seen, as PNG.
    ///
    /// # Errors
    /// Where there is none.
    pub fn picture(&mut self) -> Result<Vec<u8>> {
        let taken = self.call("Page.captureScreenshot", &json!({ "format": "png", "optimizeForSpeed": false }))?;
        Ok(base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().context("a picture")?)?)
    }

    /// All that its log holds of errors and warnings.
    pub fn complaints(&self) -> Vec<String> {
        let is_bad = |event: &&Value| match event["method"].as_str() {
            Some("Log.entryAdded") => matches!(event["params"]["entry"]["level"].as_str(), Some("error" | "warning")),
            Some("Runtime.consoleAPICalled") => {
                matches!(event["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            Some("Runtime.exceptionThrown") => true,
            _ => false,
        };
        self.events.iter().filter(is_bad).map(|event| event["params"].to_string()).collect()
    }

    /// Every address that it asked for something.
    pub fn asked(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| Some(event["params"]["request"]["url"].as_str()?.to_owned())).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.call("Browser.close", &json!({}));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
