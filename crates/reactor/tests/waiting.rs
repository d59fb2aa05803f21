//! Gates, semaphores, channels, events: under simulation, many seeds, so that tasks run in many orders.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::channel::{self, TrySendError};
use reactor::{Deadline, Event, Gate, GateClosed, Group, Semaphore, Signal, oneshot, sim, spawn, yield_now};

fn on_seeds<Fut: Future<Output = ()> + 'static>(body: fn() -> Fut) {
    for seed in 0..50 {
        sim::run_one(seed, body);
    }
}

async fn a_while() {
    reactor::sleep(Duration::from_micros(reactor::random_u64() % 300)).await;
}

#[test]
fn closing_a_gate_waits_for_all_inside_and_lets_nobody_in() {
    on_seeds(|| async {
        let gate = Gate::new();
        let left = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (hold, left) = (gate.enter().unwrap(), left.clone());
            drop(spawn(Group::STATEMENT, async move {
                a_while().await;
                let helper = hold.clone();
                drop(hold);
                yield_now().await;
                left.set(left.get() + 1);
                drop(helper);
            }));
        }
        let other = gate.clone();
        let second = spawn(Group::STATEMENT, async move { other.close().await });
        gate.close().await;
        assert_eq!((left.get(), gate.inside()), (10, 0));
        assert!(gate.is_closed());
        assert_eq!(gate.enter().err(), Some(GateClosed));
        second.await.unwrap();
    });
}

#[test]
fn permits_are_never_exceeded_and_all_come_back() {
    on_seeds(|| async {
        let semaphore = Semaphore::new(5);
        let (held, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let tasks: Vec<_> = (0..30usize)
            .map(|number| {
                let (semaphore, held, done) = (semaphore.clone(), held.clone(), done.clone());
                spawn(Group::STATEMENT, async move {
                    let count = number % 5 + 1;
                    let patience = Deadline::after(Duration::from_micros(200 + number as u64 * 50));
                    let Ok(Ok(permit)) = reactor::timeout(patience, semaphore.acquire(count)).await else {
                        return;
                    };
                    assert_eq!(permit.count(), count);
                    held.set(held.get() + count);
                    assert!(held.get() <= 5);
                    a_while().await;
                    held.set(held.get() - count);
                    done.set(done.get() + 1);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(done.get() > 0);
        assert_eq!((semaphore.available(), semaphore.waiting()), (5, 0));
    });
}

#[test]
fn permits_are_granted_in_the_order_of_asking() {
    on_seeds(|| async {
        let semaphore = Semaphore::with_waiters_max(2, 3);
        let first = semaphore.acquire(2).await.unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, count) in [2usize, 1, 1].into_iter().enumerate() {
            let (line, log) = (semaphore.clone(), order.clone());
            tasks.push(spawn(Group::STATEMENT, async move {
                let permit = line.acquire(count).await.unwrap();
                log.borrow_mut().push(number);
                yield_now().await;
                drop(permit);
            }));
            while semaphore.waiting() <= number {
                yield_now().await;
            }
        }
        assert!(semaphore.try_acquire(0).is_none(), "nobody passes the line");
        assert_eq!(semaphore.acquire(1).await.err().map(|full| full.waiting), Some(3));
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.borrow()[0], 0, "the large request was first in line");
        let permit = semaphore.try_acquire(2).unwrap();
        permit.forget();
        assert_eq!(semaphore.available(), 0);
        semaphore.add(7);
        let mut permit = semaphore.acquire(7).await.unwrap();
        permit.release(3);
        assert_eq!((permit.count(), semaphore.available()), (4, 3));
    });
}

#[test]
fn a_granted_permit_that_is_not_taken_goes_to_the_next() {
    on_seeds(|| async {
        let semaphore = Semaphore::new(1);
        let held = semaphore.acquire(1).await.unwrap();
        let mut given_up = Box::pin(semaphore.acquire(1));
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(given_up.as_mut().poll(context).is_pending())
        });
        assert!(polled.await);
        let line = semaphore.clone();
        let next = spawn(Group::STATEMENT, async move { line.acquire(1).await.map(|permit| permit.count()) });
        while semaphore.waiting() < 2 {
            yield_now().await;
        }
        drop(held); // granted to the first in line, who never looks
        drop(given_up);
        assert_eq!(next.await.unwrap(), Ok(1));
    });
}

#[test]
fn a_channel_keeps_order_bounds_and_counts_its_senders() {
    on_seeds(|| async {
        let (sender, mut receiver) = channel::bounded(3);
        let producers: Vec<_> = (0..4u32)
            .map(|producer| {
                let sender = sender.clone();
                spawn(Group::STATEMENT, async move {
                    for number in 0..20u32 {
                        sender.send((producer, number)).await.unwrap();
                        if number % 7 == 0 {
                            a_while().await;
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        while let Some((producer, number)) = receiver.recv().await {
            assert!(receiver.len() <= 3);
            assert_eq!(number, next[producer as usize]);
            next[producer as usize] += 1;
        }
        assert_eq!(next, [20; 4]);
        for producer in producers {
            producer.await.unwrap();
        }
    });
}

#[test]
fn senders_get_their_values_back_when_the_receiver_goes() {
    on_seeds(|| async {
        let (sender, receiver) = channel::bounded(1);
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        let other = sender.clone();
        let waiting = spawn(Group::STATEMENT, async move { other.send(3).await });
        a_while().await;
        drop(receiver);
        assert_eq!(waiting.await.unwrap(), Err(channel::SendError(3)));
        assert_eq!(sender.send(4).await, Err(channel::SendError(4)));
        assert_eq!(sender.try_send(5), Err(TrySendError::Closed(5)));
        assert!(sender.is_closed());
        let (sender, receiver) = channel::bounded(1);
        sender.try_send(1).unwrap();
        drop(receiver);
        assert_eq!(sender.send(2).await, Err(channel::SendError(2)), "a full queue nobody will empty");
    });
}

#[test]
fn an_event_wakes_all_who_wait_each_time() {
    on_seeds(|| async {
        let (event, value) = (Rc::new(Event::new()), Rc::new(Cell::new(0)));
        let tasks: Vec<_> = (1..=10)
            .map(|wanted| {
                let (event, value) = (event.clone(), value.clone());
                spawn(Group::STATEMENT, async move {
                    let missed =
                        reactor::timeout(Deadline::after(Duration::from_micros(5)), event.wait()).await;
                    let _ = missed;
                    event.wait_until(|| value.get() >= wanted).await;
                    value.get()
                })
            })
            .collect();
        for _ in 0..10 {
            a_while().await;
            value.set(value.get() + 1);
            event.notify_all();
        }
        for (at, task) in tasks.into_iter().enumerate() {
            assert!(task.await.unwrap() > at);
        }
    });
}

#[test]
fn a_promise_is_kept_or_known_to_be_broken() {
    on_seeds(|| async {
        let (sender, receiver) = oneshot();
        drop(spawn(Group::STATEMENT, async move {
            a_while().await;
            sender.send(5).unwrap();
        }));
        assert_eq!(receiver.await, Ok(5));
        let (sender, receiver) = oneshot::<u8>();
        drop(spawn(Group::STATEMENT, async move {
            a_while().await;
            drop(sender);
        }));
        assert!(receiver.await.is_err());
        let (sender, receiver) = oneshot();
        drop(receiver);
        assert!(sender.is_abandoned());
        assert_eq!(sender.send(1), Err(1));
    });
}

#[test]
fn shard_locals_are_one_per_type() {
    on_seeds(|| async {
        assert!(reactor::local::<Cell<u32>>().is_none());
        reactor::set_local(Rc::new(Cell::new(3u32)));
        reactor::set_local(Rc::new("text"));
        assert_eq!(reactor::local::<Cell<u32>>().unwrap().get(), 3);
        reactor::set_local(Rc::new(Cell::new(4u32)));
        assert_eq!(reactor::local::<Cell<u32>>().unwrap().get(), 4);
        assert_eq!(*reactor::local::<&str>().unwrap(), "text");
    });
}

#[test]
fn metrics_are_registered_once_and_sampled() {
    on_seeds(|| async {
        let counter = reactor::metrics::counter("requests_total", "Requests.", &[("kind", "read")]);
        reactor::metrics::counter("requests_total", "Requests.", &[("kind", "read")]).add(2);
        counter.inc();
        reactor::metrics::gauge("open", "Open.", &[]).set(-1);
        reactor::metrics::histogram("latency_us", "Latency.", &[]).record(100);
        let samples = reactor::metrics::snapshot();
        let find = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap();
        assert_eq!(find("requests_total").value, reactor::metrics::Value::Counter(3));
        assert_eq!(find("open").value, reactor::metrics::Value::Gauge(-1));
        assert_eq!(find("reactor_task_panics_total").value, reactor::metrics::Value::Counter(0));
        reactor::metrics::remove("open", &[]);
        assert!(reactor::metrics::snapshot().iter().all(|sample| sample.name != "open"));
    });
}

#[test]
fn other_tasks_run_while_metrics_are_collected() {
    let turns = Rc::new(Cell::new(0));
    for seed in 0..20 {
        let turns = Rc::clone(&turns);
        sim::run_one(seed, move || async move {
            for number in 0..1000 {
                reactor::metrics::counter("many", "Many.", &[("number", &format!("{number:04}"))]).inc();
            }
            let ended = Rc::new(Cell::new(false));
            let other = {
                let ended = Rc::clone(&ended);
                spawn(Group::STATEMENT, async move {
                    while !ended.get() {
                        turns.set(turns.get() + 1);
                        yield_now().await;
                    }
                })
            };
            let samples = spawn(Group::ADMIN, reactor::metrics::collect()).await.unwrap();
            ended.set(true);
            other.await.unwrap();
            let names = |samples: Vec<reactor::metrics::Sample>| -> Vec<_> {
                samples.into_iter().map(|sample| (sample.name, sample.labels)).collect()
            };
            assert_eq!(names(samples), names(reactor::metrics::snapshot()));
        });
    }
    // Simulated, one question in eight whether others wait is answered with yes: 44 questions, 20 times.
    assert!(turns.get() > 80, "{}", turns.get());
}

#[test]
fn a_signal_wakes_the_one_who_waits_however_often_it_is_notified() {
    on_seeds(|| async {
        let (signal, count) = (Rc::new(Signal::new()), Rc::new(Cell::new(0)));
        let (waited, counted) = (signal.clone(), count.clone());
        let waiting = spawn(Group::STATEMENT, async move {
            for round in 1..=20 {
                let late = Deadline::after(Duration::from_micros(50));
                // Sometimes dropped before it is over: the next wait is woken nevertheless.
                let _ = reactor::timeout(late, waited.wait_until(|| counted.get() >= round)).await;
                waited.wait_until(|| counted.get() >= round).await;
            }
        });
        for _ in 0..20 {
            a_while().await;
            count.set(count.get() + 1);
            signal.notify();
            signal.notify();
        }
        waiting.await.unwrap();
    });
}
