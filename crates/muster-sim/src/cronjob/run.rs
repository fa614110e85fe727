//! Serves CronJobs.

use super::CronJob;
use super::plan::{job_of, plan};
use crate::api::{ApiError, Delete};
use crate::context::Context;
use crate::job::Job;
use crate::object::{Key, Object};
use crate::podcontrol::wake_by_self;
use crate::queue::{Next, Queue, work};
use crate::store::Store;

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let crons = cx.store::<CronJob>();
    let jobs = cx.store::<Job>();
    let queue = Queue::new();
    wake_by_self(&crons, &queue);
    {
        let queue = queue.clone();
        jobs.observe(move |change| {
            for job in change.sides() {
                if let Some(owner) = job.metadata.controller().filter(|o| o.kind == "CronJob") {
                    queue.add(Key::new(job.metadata.namespace.clone(), owner.name.clone()));
                }
            }
        });
    }
    let cx = cx.named("cronjob-controller");
    async move {
        if cx.synced([crons.synced()]).await.is_none() || cx.synced([jobs.synced()]).await.is_none() {
            return;
        }
        work("cronjob", queue, 4, cx.cancel.clone(), |key| look(&cx, &crons, &jobs, key)).await;
    }
}

async fn look(cx: &Context, crons: &Store<CronJob>, jobs: &Store<Job>, key: Key) -> Result<Next, ApiError> {
    let Some(cron) = crons.get(&key) else { return Ok(Next::Idle) };
    let plan = plan(&cron, &jobs.owned_by(&cron.metadata.uid), cx.clock.now());
    for (warning, reason, message) in plan.news {
        if warning {
            cx.events.warning(&*cron, reason, message);
        } else {
            cx.events.normal(&*cron, reason, message);
        }
    }
    for job in &plan.delete {
        let delete = Delete { uid: &job.metadata.uid, grace_seconds: None, propagation: Some("Background") };
        match cx.api.delete::<Job>(&job.key(), delete).await {
            Err(error) if !error.not_found() && !error.conflict() => return Err(error),
            _ => cx.events.normal(&*cron, "SuccessfulDelete", format!("Deleted job {}", job.metadata.name)),
        }
    }
    if let Some(tick) = plan.create {
        match cx.api.create::<Job>(&key.namespace, &job_of(&cron, tick)).await {
            Ok(job) => {
                cx.events.normal(&*cron, "SuccessfulCreate", format!("Created job {}", job.metadata.name));
                jobs.enter(job);
            }
            // This tick was served before a restart.
            Err(error) if error.already_exists() => {}
            Err(error) => {
                cx.events.warning(&*cron, "FailedCreate", format!("Error creating job: {}", error.message()));
                return Err(error);
            }
        }
    }
    crons.write_status(&cx.api, &*cron, &cron.status, &plan.status).await?;
    Ok(plan.wake.map_or(Next::Idle, Next::After))
}
