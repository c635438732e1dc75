//! The client program of the conformance kit: its first line from stdin is the settings, and each task's payload is what its handler
//! is to do. Put your own handler in the place of `handle`.
#[rustfmt::skip] // it is written to be short
mod collector;

use collector::{Session, ms};
use outcome::Result as Ends;
use serde_json::{Value, json};
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering::SeqCst};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tonic::Response;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

tonic::include_proto!("waggle.v1");

fn canceled(task: &str, why: &str) {
    println!("{}", json!({"event": "canceled", "task": task, "reason": why}));
}

fn finished(task: &str) {
    println!("{}", json!({"event": "finished", "task": task}));
}

async fn handle(c: Arc<Session>, task: Task, lease_token: String) -> Ends {
    println!("{}", json!({"event": "started", "task": task.id}));
    let todo: Value = serde_json::from_slice(&task.payload).unwrap_or_default();
    let (number, text) = (|name: &str| todo[name].as_u64().unwrap_or(0), |name: &str| todo[name].as_str().unwrap_or(""));
    if let (Some(cursor), Some(job)) = (todo["cursor"].as_str(), c.jobs.lock().unwrap().get_mut(&lease_token)) {
        job.beat.cursor = Some(cursor.into());
    }
    let (first, more) = (number("discover_first"), number("discovered"));
    let url = |i| format!("http://found.test/{}/{i}", task.id);
    let mut items: Vec<_> = (0..first + more).map(|i| DiscoveredItem { url: url(i), ..Default::default() }).collect();
    let discovered = items.split_off(items.len() - more.min(1000) as usize);
    for items in items.chunks(1000) {
        // more than a report carries [10]
        let (task_id, lease_token) = (&task.id, &lease_token);
        let request = |_: &Session| SubmitDiscoveredRequest {
            task_id: task_id.clone(),
            lease_token: lease_token.clone(),
            items: items.to_vec(),
        };
        c.call(ms(30_000), request, |mut c, r| async move { c.submit_discovered(r).await }).await;
    }
    let work = ms(number("work_ms"));
    match todo["block"] == true || todo["stubborn"] == true {
        true => tokio::task::block_in_place(|| std::thread::sleep(work)),
        false => tokio::time::sleep(work).await,
    }
    assert!(text("raise").is_empty(), "{}", text("raise"));
    let (http_status, span) = (number("http_status") as i32, |name| ms(number(name)).try_into().ok());
    match text("outcome") {
        "failed" => Ends::Failed(Failed {
            reason: FailureReason::from_str_name(&format!("FAILURE_REASON_{}", text("reason"))).unwrap_or_default().into(),
            http_status,
            retry_after: span("retry_after_ms"),
            permanent: todo["permanent"] == true,
            ..Default::default()
        }),
        "released" => Ends::Released(Released { delay: span("delay_ms") }),
        _ => Ends::Succeeded(Succeeded {
            http_status,
            bytes: number("bytes") as i64,
            fetch_duration: span("work_ms"),
            memo: todo["memo"].as_str().map(Into::into),
            discovered,
            ..Default::default()
        }),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut input, mut line) = (BufReader::new(stdin()), String::new());
    input.read_line(&mut line).await?;
    let cfg: Value = serde_json::from_str(&line)?;
    let (text, number) =
        (|name: &str| cfg[name].as_str().unwrap_or_default().to_string(), |name: &str| cfg[name].as_u64().unwrap_or(0));
    let list = |name: &str| serde_json::from_value::<Vec<String>>(cfg[name].clone());
    let (tls, mut servers) = (!text("tls_ca").is_empty(), vec![]);
    for server in list("servers")? {
        let mut at = Endpoint::from_shared(format!("{}://{server}", if tls { "https" } else { "http" }))?.connect_timeout(ms(3000));
        at = at.http2_keep_alive_interval(ms(10_000)).keep_alive_timeout(ms(5000)).keep_alive_while_idle(true); // [3]
        if tls {
            at = at.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(text("tls_ca"))?)))?;
        }
        servers.push(dispatch_service_client::DispatchServiceClient::new(at.connect_lazy()).max_decoding_message_size(16 << 20));
    }
    let (id, session, pools) = (text("collector_id"), uuid::Uuid::new_v4().to_string(), list("pools")?);
    let labels: std::collections::HashMap<_, _> = serde_json::from_value(cfg["labels"].clone())?;
    let (wait, lease) = (ms(number("wait_ms")).try_into().ok(), Some(ms(number("lease_ms"))).filter(|lease| !lease.is_zero()));
    let fetch = FetchTaskRequest {
        collector_id: id.clone(),
        session: session.clone(),
        labels: labels.clone(),
        pools: pools.clone(),
        wait,
        lease_duration: lease.and_then(|lease| lease.try_into().ok()),
        ..Default::default()
    };
    let c = Arc::new(Session {
        info: CollectorInfo { id, session, labels, pools, slots: number("slots") as i32, ..Default::default() },
        fetch,
        token_file: text("token_file"),
        slots: Arc::new(tokio::sync::Semaphore::new(number("slots") as usize)),
        turn: AtomicUsize::new(fastrand::usize(..servers.len())),
        bad: AtomicUsize::new(usize::MAX),
        servers,
        jobs: Default::default(),
        held: Default::default(),
        stopping: Default::default(),
        failure: Default::default(),
    });
    tokio::spawn(c.clone().fetches());
    tokio::spawn(c.clone().reports());
    let stop = async {
        // [19]
        let _ = input.read_line(&mut line).await;
        c.stopping.store(true, SeqCst);
        tokio::time::sleep(ms(number("drain_ms"))).await;
        c.jobs.lock().unwrap().values_mut().for_each(|job| job.stop = Some("STOPPING"));
        tokio::time::sleep(ms(10_000)).await
    };
    tokio::select! { _ = c.clone().beats() => {}, _ = stop => {} }
    if let Some(message) = &*c.failure.lock().unwrap() {
        println!("{}", json!({"event": "error", "message": message}));
        std::process::exit(1);
    }
    std::process::exit(0) // also if a handler blocks a thread
}
