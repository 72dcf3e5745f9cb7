//! Takes the pictures of the dashboard in `docs/how-to`, of a server under load:
//!
//! `fanin demo shop`, `fanin load 'http://127.0.0.1:8080/products/p142' --rate 60 --duration 1m`, and beside it
//! `cargo run -p fanin --example dashboard_pictures -- 127.0.0.1:9090`

use std::path::Path;

use fanin_testbed::tab::Tab;

/// Data of a first reading is shown.
const SERVED: &str = "document.querySelector('#route-table tbody') && \
    document.querySelector('#route-table tbody').innerText.includes('/s') && \
    document.querySelectorAll('#chart-responses path').length > 0";

fn main() {
    let admin = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9090".into());
    picture(&admin, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to"));
}

fn picture(admin: &str, to: &Path) {
    let mut tab = Tab::open(&format!("http://{admin}/dashboard"));
    tab.resize(1280, 900, false);
    tab.prefer_dark(false);
    tab.wait_for(SERVED);
    tab.wait_for("document.querySelectorAll('#plan .call').length > 0");
    tab.screenshot(&to.join("dashboard-load.png"), false);
    tab.prefer_dark(true);
    tab.evaluate("document.querySelector('.request button') && document.querySelector('.request button').click()");
    tab.evaluate("document.getElementById('requests').scrollIntoView()");
    tab.screenshot(&to.join("dashboard-requests.png"), false);
    tab.evaluate("document.getElementById('plans').scrollIntoView()");
    tab.screenshot(&to.join("dashboard-plan.png"), false);
    tab.resize(390, 844, true);
    tab.evaluate("scrollTo(0, 0)");
    tab.screenshot(&to.join("dashboard-phone.png"), false);
}
