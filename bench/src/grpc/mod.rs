//! `grpc`: what a unary call costs whose flow returns its argument, beside a bare tonic server that returns its argument.

mod messages;

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tonic::server::UnaryService;

use crate::models::echo;
use crate::models::load::Clients;
use crate::process::{self, OTHER_CORE, SERVER_CORE, Server};
use crate::report::{Report, Table, median};
use crate::{Failure, Options, servers};
use messages::{PATH, Page, page};

const CONNECTIONS: usize = 16;
const MOST_RATIO: f64 = 1.4;
/// Products in a message. The bar is that of the first: a message of the usual size.
const SIZES: [usize; 3] = [1, 0, 20];

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let (pairs, window) = if options.quick { (5, 300) } else { (15, 1000) };
    let window = Duration::from_millis(window);
    let fanin = servers::alone("grpc", &[])?;
    let echo = Server::role("tonic echo", SERVER_CORE, &["tonic-page"])?;
    let all = [&fanin, &echo];
    let mut table = Table::new(
        &format!("CPU of a unary call that returns its argument; medians over {pairs} turns"),
        &["products", "bytes", "fanin CPU us", "tonic CPU us", "ratio", "fanin calls/s", "tonic calls/s", "failed"],
    );
    let mut report = Report::new("grpc");
    report.data = json!({});
    for products in SIZES {
        let body = page(products);
        let connect = |server: &Server| {
            let expected = body.clone();
            let check = move |answer: &[u8]| match answer == expected {
                true => Ok(()),
                false => Err(format!("{} bytes are not the {} that were sent", answer.len(), expected.len())),
            };
            Clients::connect(server.addr, CONNECTIONS, PATH, std::slice::from_ref(&body), check)
        };
        let clients = [connect(&fanin)?, connect(&echo)?];
        for clients in &clients {
            clients.window(window);
        }
        let (mut costs, mut rates, mut failed) = ([vec![], vec![]], [vec![], vec![]], 0);
        for pair in 0..pairs {
            for turn in 0..2 {
                let at = (pair + turn) % 2;
                let before = all[at].usage()?.cpu;
                let (asked, wrong) = clients[at].window(window);
                let used = all[at].usage()?.cpu.saturating_sub(before);
                costs[at].push(used.as_secs_f64() * 1e6 / asked.max(1) as f64);
                rates[at].push(asked as f64 / window.as_secs_f64());
                failed += wrong;
            }
        }
        let ratio = median(costs[0].iter().zip(&costs[1]).map(|(ours, theirs)| ours / theirs));
        let middle = |list: &[f64]| median(list.iter().copied());
        table.rows.push(vec![
            products.to_string(),
            body.len().to_string(),
            format!("{:.1}", middle(&costs[0])),
            format!("{:.1}", middle(&costs[1])),
            format!("{ratio:.3}"),
            format!("{:.0}", middle(&rates[0])),
            format!("{:.0}", middle(&rates[1])),
            failed.to_string(),
        ]);
        if products == SIZES[0] {
            report.at_most("CPU of a unary call / of a bare tonic echo", ratio, MOST_RATIO, "");
        }
        report.holds(&format!("{} bytes: no failed call", body.len()), failed.to_string(), failed == 0);
        report.data[products.to_string()] = json!({"fanin_us": costs[0], "tonic_us": costs[1]});
    }
    report.tables.push(table);
    Ok(report)
}

#[derive(Clone)]
struct Echo;

impl UnaryService<Page> for Echo {
    type Response = Page;
    type Future = Ready<Result<tonic::Response<Page>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Page>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

/// The bare tonic server; serves until the process ends.
pub fn serve(listen: SocketAddr, ready: impl Fn(SocketAddr)) -> std::io::Result<()> {
    echo::serve(listen, ready, Echo)
}
