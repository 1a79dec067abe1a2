//! What the kernel refuses does not stop the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use svcmap::netlink::model::{Data, Element, NfFamily, Op, SetRef, Verdict};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::objects::{Family, ServiceKey};
use svcmap::source::Change;
use svcmap::source::cluster::Message;
use svcmap::sync::Periods;

use crate::support::{Loop, dual_stack_cluster, listing, wait_for};

const PUT_ASIDE: &str = "it stays as it is until it changes";

fn services_map() -> SetRef {
    SetRef { family: NfFamily::IPV4, table: "svcmap".into(), name: "services".into() }
}

/// The element that stands for a Service.
fn element_of(connection: &mut Connection, service: &ServiceKey) -> Element {
    let elements = connection.elements(&services_map()).unwrap();
    let comment =
        |element: &Element| element.comment.as_ref().is_some_and(|text| text.starts_with(&service.to_string()));
    elements.into_iter().find(comment).expect("the Service is programmed")
}

/// Puts another verdict into the Service's place and takes it out again, all the time: what svcmap reads is not always what
/// its transaction meets, and the kernel refuses it. Between two changes there is time enough to list a map.
fn occupy(mut connection: Connection, own: Element, stop: Arc<AtomicBool>) {
    let foreign = Element { data: Data::Verdict(Verdict::Drop), comment: None, ..own.clone() };
    let delete = |element: &Element| Op::DeleteElements { set: services_map(), elements: vec![element.clone()] };
    let add = Op::AddElements { set: services_map(), elements: vec![foreign.clone()] };
    while !stop.load(Ordering::Relaxed) {
        // It is refused while svcmap's own element is there: then that one has to go.
        if connection.commit(std::slice::from_ref(&add)).is_err() {
            let _ = connection.commit(&[delete(&own)]);
        } else {
            thread::sleep(FLIP);
            let _ = connection.commit(&[delete(&foreign)]);
        }
        thread::sleep(FLIP);
    }
}

const FLIP: Duration = Duration::from_millis(1);

netns_test! {
    fn a_refused_service_does_not_stop_the_others() {
        let running = Loop::start(Periods { min: Duration::ZERO, full: Duration::from_millis(200) });
        let all = dual_stack_cluster(40);
        let victim = all.services[0].key.clone();
        let first = svcmap::source::Snapshot { services: all.services[..20].to_vec(), ..all.clone() };
        running.objects(&first);
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);

        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let own = element_of(&mut connection, &victim);
        let stop = Arc::new(AtomicBool::new(false));
        let occupant = {
            let (own, stop) = (own.clone(), stop.clone());
            thread::spawn(move || occupy(connection, own, stop))
        };
        running.wait_for_log(PUT_ASIDE, 1);
        all.services[20..].iter().for_each(|service| running.change(Change::Service(service.clone())));
        for service in &all.services[20..] {
            let comment = format!("\"{}:", service.key);
            wait_for("the other Services", || listing().contains(&comment));
        }

        // what is refused in one family does not hold the other back
        let mut slice = all.slices.iter().find(|s| s.service_key() == victim && s.family == Family::V6).unwrap().clone();
        slice.endpoints[0].address = "fd10::beef".parse().unwrap();
        running.change(Change::Slice(slice));
        wait_for("the other family of the Service", || listing().contains("fd10::beef"));

        stop.store(true, Ordering::Relaxed);
        occupant.join().unwrap();
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let is_back = |connection: &mut Connection| {
            connection.elements(&services_map()).unwrap().iter().any(|e| (&e.key, &e.data) == (&own.key, &own.data))
        };
        wait_for("the Service that was refused", || is_back(&mut connection));
        running.wait_for_log("the kernel takes it now", 1);
        let stats = running.stop();
        assert!(stats.refused > 0, "{stats:?}");
        assert_eq!(stats.aside, 0, "{stats:?}");
    }
}
