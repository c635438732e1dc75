// Package collectortest tries a handler out on a real dispatcher, within a test and without a network: the dispatcher
// runs on the memory store, in the process of the test.
//
//	func TestHandler(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			d := collectortest.Start(t)
//			d.CreateSource(&wagglev1.SourceSpec{Id: "shop", Seeds: []*wagglev1.Seed{{Url: "https://shop.example/"}}})
//			d.Work(handler)
//			if task := d.Task("shop", "https://shop.example/"); task.GetCycle() != 1 {
//				t.Errorf("the seed was not crawled: %v", task)
//			}
//		})
//	}
//
// All of it runs in the bubble of testing/synctest as well as outside: within one, delays of hosts, backoffs and leases
// that run out take no time. Outside, politeness is off by default, so that a test need not wait for it.
//
// A Machine is where a collector runs; it can die in the middle of its work, with no word to the dispatcher.
package collectortest
