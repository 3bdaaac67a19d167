//! The files that pages load: all in the program, so that no page asks another host for anything.

/// A file and its type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asset {
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The file of that name.
pub(super) fn named(name: &str) -> Option<Asset> {
    Some(match name {
        "console.css" => Asset { kind: CSS, text: include_str!("assets/console.css") },
        "console.js" => Asset { kind: SCRIPT, text: include_str!("assets/console.js") },
        "icon.svg" => Asset { kind: "image/svg+xml", text: include_str!("assets/icon.svg") },
        "uPlot.iife.min.js" => Asset { kind: SCRIPT, text: include_str!("assets/uPlot.iife.min.js") },
        "uPlot.min.css" => Asset { kind: CSS, text: include_str!("assets/uPlot.min.css") },
        "uPlot.LICENSE" => Asset { kind: "text/plain; charset=utf-8", text: include_str!("assets/uPlot.LICENSE") },
        _ => return None,
    })
}
