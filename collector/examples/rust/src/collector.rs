//! A collector, written from the manual (proto/README.md), whose sections stand in brackets. It beats by RenewLease, so what ends a
//! task comes with the next beat. A handler that is to end does so at its next await.
use crate::{dispatch_service_client::DispatchServiceClient as Client, outcome::Result as Ends, *};
use std::{collections::HashMap, sync::Arc, sync::Mutex, sync::atomic::AtomicBool, sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt;

/// A lease that is held, until its report is answered.
pub struct Job {
    deadline: Instant, length: Duration, since: Instant, report: Option<TaskReport>, due: Instant,
    pub beat: LeaseBeat, pub stop: Option<&'static str>, // why it must end
}

pub struct Session {
    pub info: CollectorInfo, pub fetch: FetchTaskRequest, pub token_file: String, pub servers: Vec<Client<Channel>>,
    pub turn: AtomicUsize, pub bad: AtomicUsize, // which servers
    pub slots: Arc<Semaphore>, pub jobs: Mutex<HashMap<String, Job>>, // by lease token
    pub held: AtomicBool, pub stopping: AtomicBool, pub failure: Mutex<Option<String>>,
}

pub fn ms(n: u64) -> Duration { Duration::from_millis(n) }
fn span(d: Option<prost_types::Duration>) -> Duration { d.and_then(|d| d.try_into().ok()).unwrap_or_default() }

impl Session {
    async fn until<T>(&self, check: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            if let Some(found) = check(self) { return found } else { sleep(ms(10)).await }
        }
    }

    /// One call, repeated until it is answered [4], and when that was sent; None if it is refused. Each dispatcher has its turn [3].
    pub async fn call<Q, A, F: Future<Output = Result<Response<A>, Status>>>(
        &self, limit: Duration, message: impl Fn(&Self) -> Q, method: impl Fn(Client<Channel>, Request<Q>) -> F,
    ) -> Option<(Instant, A)> {
        for failures in 0.. {
            let (sent, mut at) = (Instant::now(), self.turn.fetch_add(1, SeqCst) % self.servers.len());
            let mut request = Request::new(message(self));
            if at == self.bad.load(SeqCst) { at = self.turn.fetch_add(1, SeqCst) % self.servers.len() }
            request.metadata_mut().insert("waggle-client", "rust-example/0.1.0".parse().unwrap()); // [22]
            if let Ok(token) = std::fs::read_to_string(&self.token_file) { // perhaps a new one [18]
                request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse().unwrap());
            }
            request.set_timeout(limit);
            let answer = timeout(limit, method(self.servers[at].clone(), request)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
            let error = match answer { Ok(answer) => return Some((sent, answer.into_inner())), Err(error) => error };
            self.bad.store(at, SeqCst);
            let asked = error.get_details_retry_info().and_then(|info| info.retry_delay).unwrap_or_default();
            let wait = ms(100 << failures.min(6)).min(ms(5000)).mul_f64(0.5 + fastrand::f64() / 2.0).max(asked);
            sleep(wait.min(limit)).await; // leases need their beats meanwhile
            if matches!(error.code(), Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::PermissionDenied) {
                let reason = error.get_details_error_info().map(|info| info.reason).unwrap_or_default();
                if reason == "LEASE_LOST" { return None } // of a task whose links it submits
                self.failure.lock().unwrap().get_or_insert(format!("{reason}: {}", error.message()));
                self.stopping.store(true, SeqCst);
                self.jobs.lock().unwrap().retain(|_, _| reason != "COLLECTOR_REPLACED");
                return None;
            }
        }
        unreachable!()
    }

    pub async fn fetches(self: Arc<Self>) { // [6]
        while !self.stopping.load(SeqCst) {
            tokio::select! { _ = self.until(|c| c.stopping.load(SeqCst).then_some(())) => {}, _ = self.fetch() => {} }
        }
    }

    async fn fetch(self: &Arc<Self>) {
        let free = |c: &Self| Some(c.slots.available_permits().min(1000) as i32).filter(|n| *n > 0 && !c.held.load(SeqCst));
        let (max_tasks, client_token) = (self.until(free).await, uuid::Uuid::new_v4().to_string());
        let request = |c: &Self| FetchTaskRequest { client_token: client_token.clone(), max_tasks, ..c.fetch.clone() };
        let reply = self.call(span(self.fetch.wait) + ms(5000), request, |mut c, r| async move { c.fetch_task(r).await }).await;
        let Some((sent, reply)) = reply else { return };
        let stay = matches!(reply.empty_reason(), EmptyReason::Held | EmptyReason::CollectorHeld | EmptyReason::DispatcherDraining);
        let rest = if stay { span(reply.retry_after) } else { ms(10) };
        for LeasedTask { task, lease } in reply.leased_tasks {
            let (task, Lease { task_id, lease_token, duration, .. }) = (task.unwrap_or_default(), lease.unwrap_or_default());
            let beat = LeaseBeat { task_id, lease_token: lease_token.clone(), ..Default::default() };
            let (length, deadline, since) = (span(duration), sent + span(reply.waited) + span(duration), Instant::now()); // [7]
            let job = Job { beat, deadline, since, length, report: None, due: sent, stop: None };
            self.jobs.lock().unwrap().insert(lease_token.clone(), job);
            let slot = self.slots.clone().try_acquire_owned().expect("it asked for no more than are free");
            tokio::spawn(self.clone().work(task, lease_token, slot));
        }
        sleep(rest).await
    }

    fn ended(&self, token: &str) -> Option<&'static str> { // why work on a lease must end, if it must [7]
        let mut jobs = self.jobs.lock().unwrap();
        let Some(job) = jobs.get_mut(token) else { return Some("LEASE_LOST") };
        job.stop = job.stop.or((Instant::now() + (job.length / 10).min(ms(2000)) >= job.deadline).then_some("LEASE_LOST"));
        job.stop
    }

    async fn work(self: Arc<Self>, task: Task, lease_token: String, _slot: OwnedSemaphorePermit) {
        let (task_id, handler) = (task.id.clone(), tokio::spawn(handle(self.clone(), task, lease_token.clone())));
        let (why, abort) = (self.until(|c| c.ended(&lease_token)), handler.abort_handle());
        let watch = async { (canceled(&task_id, why.await), abort.abort(), std::future::pending::<()>().await) };
        let done = tokio::select! { done = handler => done, _ = watch => unreachable!() };
        finished(&task_id);
        let mut ends = done.unwrap_or_else(|panic| Ends::Failed(Failed { reason: 11, message: panic.to_string(), ..Default::default() }));
        if self.ended(&lease_token).is_some() { ends = Ends::Released(Released::default()) } // also if the process was frozen
        if let Some(job) = self.jobs.lock().unwrap().get_mut(&lease_token) {
            job.report = Some(TaskReport { task_id, lease_token, outcome: Some(Outcome { result: Some(ends) }) });
        }
    }

    fn interval(&self) -> Duration {
        self.jobs.lock().unwrap().values().map(|job| job.length / 3).min().unwrap_or(ms(15_000)).clamp(ms(150), ms(15_000))
    }

    fn idle(&self) -> bool {
        let free = self.slots.available_permits() == self.info.slots as usize;
        free && self.stopping.load(SeqCst) && self.jobs.lock().unwrap().is_empty()
    }

    pub async fn beats(self: Arc<Self>) { // until everything is reported [19]
        loop {
            let (begun, stopping, ended) = (Instant::now(), self.stopping.load(SeqCst), self.idle());
            let beat = |c: &Self| RenewLeaseRequest { // names every lease that has not run out here [7, 8]
                leases: c.jobs.lock().unwrap().values().filter(|job| job.stop != Some("LEASE_LOST")).map(|job| job.beat.clone()).collect(),
                collector: Some(CollectorInfo { stopping, ended, ..c.info.clone() }),
            };
            let reply = self.call((self.interval() / 2).min(ms(5000)), beat, |mut c, r| async move { c.renew_lease(r).await }).await;
            if ended { return }
            let (sent, status) = reply.map(|(sent, reply)| (sent, reply.status.unwrap_or_default())).unwrap_or((begun, LeaseStatus::default()));
            self.held.store(status.held, SeqCst);
            self.jobs.lock().unwrap().retain(|token, _| status.lost.iter().all(|lost| lost.lease_token != *token));
            for job in self.jobs.lock().unwrap().values_mut().filter(|job| job.since < sent) {
                match status.limited.iter().find(|limited| limited.task_id == job.beat.task_id).map(|limited| span(limited.duration)) {
                    Some(left) => job.deadline = if left.is_zero() { job.deadline } else { sent + left },
                    None => job.deadline = job.deadline.max(sent + span(status.lease_duration)),
                }
                if status.cancel.iter().any(|cancel| cancel.task_id == job.beat.task_id) { job.stop = Some("CANCELED") }
            }
            let next = span(status.next_heartbeat).max(ms(150));
            let due = |c: &Self| sent.elapsed() >= next.min(c.interval()) || c.stopping.load(SeqCst) != stopping || c.idle();
            self.until(|c| due(c).then_some(())).await;
        }
    }

    fn due(&self) -> Vec<TaskReport> {
        let (now, mut bytes, mut jobs) = (Instant::now(), 0, self.jobs.lock().unwrap());
        jobs.retain(|_, job| job.report.is_none() || now < job.deadline + ms(30_000)); // [7]
        let small = |report: &TaskReport| (bytes += prost::Message::encoded_len(report), bytes < 3 << 20).1; // [20]
        jobs.values().filter_map(|job| job.report.clone().filter(|_| job.due <= now)).take(1000).take_while(small).collect()
    }

    pub async fn reports(self: Arc<Self>) { // [9]
        loop {
            self.until(|c| (!c.due().is_empty()).then_some(())).await;
            let (collector_id, session) = (self.info.id.clone(), self.info.session.clone());
            let request = |c: &Self| ReportTaskRequest { collector_id: collector_id.clone(), session: session.clone(), reports: c.due() };
            let reply = self.call(ms(5000), request, |mut c, r| async move { c.report_task(r).await }).await;
            for result in reply.map(|(_, reply)| reply.results).unwrap_or_default() {
                let (again, mut jobs) = (Instant::now() + span(result.retry_after).max(ms(100)), self.jobs.lock().unwrap());
                let full = matches!(result.code(), ReportCode::StoreFull | ReportCode::StoreUnavailable);
                jobs.retain(|_, job| full || job.beat.task_id != result.task_id || job.report.is_none());
                jobs.values_mut().filter(|job| job.beat.task_id == result.task_id).for_each(|job| job.due = again);
            }
        }
    }
}
