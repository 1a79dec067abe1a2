//! When the loop syncs (rows A12, J1, J6, J16).

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use svcmap::netlink::CodecKind;
use svcmap::nftables::program::Programmer;
use svcmap::source::cluster::Message;
use svcmap::source::{Change, Loaded, Snapshot};
use svcmap::sync::{Event, Periods};

use crate::support::{Loop, cluster, listing, nft, wait_for};

const LONG: Duration = Duration::from_secs(3600);

netns_test! {
    /// Row A12.
    fn nothing_is_programmed_before_everything_has_been_listed() {
        let running = Loop::start(Periods { min: Duration::ZERO, full: LONG });
        running.objects(&cluster(3));
        sleep(Duration::from_millis(500));
        assert_eq!(listing(), "");
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);
        assert!(listing().contains("map services"));
        assert_eq!(running.stop().syncs, 1);
    }
}

netns_test! {
    /// Whoever names an empty directory, or empties one, is told what that did: once.
    fn manifests_without_services_are_said_with_numbers() {
        let manifests = |snapshot: Snapshot| Event::Manifests(Loaded { snapshot, ..Loaded::default() });
        let running = Loop::start(Periods { min: Duration::ZERO, full: LONG });
        running.send(manifests(cluster(5)));
        running.wait_for_log(" synced", 1);
        let said = "the manifests hold no Service, so that nothing is served: of what was programmed, 5 Service ports and ";
        assert_eq!(running.logged("hold no Service"), 0);
        for _ in 0..2 {
            running.send(manifests(Snapshot::default()));
        }
        running.wait_for_log(said, 1);
        running.send(manifests(cluster(6)));
        running.wait_for_log(" synced", 3);
        assert_eq!(running.logged("hold no Service"), 1);
        running.stop();
    }
}

netns_test! {
    /// Row J1.
    fn changes_within_the_shortest_period_are_one() {
        let running = Loop::start(Periods { min: Duration::from_secs(4), full: LONG });
        let all = cluster(100);
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);
        for (service, slice) in all.services.iter().zip(&all.slices) {
            running.change(Change::Service(service.clone()));
            running.change(Change::Slice(slice.clone()));
            sleep(Duration::from_millis(1));
        }
        running.wait_for_log(" synced", 2);
        let last = &all.services[99].key;
        assert!(listing().contains(&format!("\"{last}")), "all of them at once");
        assert_eq!(running.stop().syncs, 2);
    }
}

netns_test! {
    /// Row J6: what somebody else does to the tables is found and put right; where nobody does anything, nothing is read.
    fn the_kernel_is_put_right_after_somebody_changed_it() {
        let running = Loop::start(Periods { min: Duration::ZERO, full: Duration::from_millis(300) });
        running.objects(&cluster(5));
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);
        let right = listing();
        sleep(Duration::from_secs(1));
        assert_eq!(running.logged(" synced"), 1);
        nft(&["flush", "map", "ip", "svcmap", "services"]);
        running.wait_for_log("put right", 1);
        wait_for("the elements", || listing().matches("comment").count() == right.matches("comment").count());
        nft(&["delete", "table", "ip", "svcmap"]);
        running.wait_for_log("put right", 2);
        wait_for("the table", || listing().matches("comment").count() == right.matches("comment").count());
        let stats = running.stop();
        assert_eq!((stats.syncs, stats.failures), (3, 0), "periods in which nobody did anything cost no sync");
    }
}

netns_test! {
    /// Between the periods, too; and other tables are nobody's business.
    fn a_change_by_others_is_put_right_at_once() {
        let running = Loop::guarded();
        running.objects(&cluster(5));
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);
        let right = listing();
        nft(&["add", "table", "ip", "foreign"]);
        nft(&["delete", "table", "ip", "foreign"]);
        for times in 1..=5 {
            nft(&["flush", "map", "ip", "svcmap", "services"]);
            running.wait_for_log("put right", times);
            wait_for("the elements", || listing().matches("comment").count() == right.matches("comment").count());
        }
        assert_eq!(running.logged("nft (process "), 5);
        running.change(Change::ServiceGone(cluster(5).services[0].key.clone()));
        running.wait_for_log(" synced", 7);
        assert_eq!(running.logged("nft (process "), 5, "its own changes are nobody else's");
        let stats = running.stop();
        assert_eq!((stats.syncs, stats.failures), (7, 0));
    }
}

netns_test! {
    fn only_foreign_changes_count_as_touching() {
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        assert!(!programmer.is_untouched().unwrap(), "it has not been read");
        let mut tracker = svcmap::tracker::Tracker::new(svcmap::config::ProxyConfig::default());
        tracker.replace(cluster(20));
        tracker.take();
        let (node, ports) = tracker.whole().unwrap();
        programmer.replace(node, ports).unwrap();
        assert!(programmer.is_untouched().unwrap());
        tracker.replace(cluster(10));
        programmer.change(tracker.take().0).unwrap();
        programmer.collect().unwrap();
        assert!(programmer.is_untouched().unwrap(), "its own changes");
        nft(&["add", "table", "ip", "foreign"]);
        assert!(!programmer.is_untouched().unwrap());
        tracker.replace(cluster(12));
        programmer.change(tracker.take().0).unwrap();
        assert!(!programmer.is_untouched().unwrap(), "its own changes do not hide the others'");
    }
}

netns_test! {
    /// Row J16.
    fn the_time_from_a_change_to_its_commit_is_measured() {
        let running = Loop::start(Periods { min: Duration::ZERO, full: LONG });
        let all = cluster(2);
        running.objects(&all);
        running.tell(Message::Listed);
        running.wait_for_log(" synced", 1);
        let mut slice = all.slices[0].clone();
        slice.endpoints.pop();
        let before = SystemTime::now();
        running.change_of(Change::Slice(slice), before - Duration::from_secs(100));
        running.wait_for_log(" synced", 2);
        assert_eq!(running.logged("latency_ms=10"), 1, "100 seconds and a little");
        let programming = running.stop().programming;
        assert_eq!(programming.count, 1);
        let most = Duration::from_secs(100) + before.elapsed().unwrap();
        assert!(programming.last >= Duration::from_secs(100) && programming.last <= most, "{programming:?}");
        assert_eq!((programming.total, programming.longest), (programming.last, programming.last));
    }
}
