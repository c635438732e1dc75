package main

import (
	"strings"
	"testing"
)

// TestLedger shows that a peer that hands out what it may not, or loses a task, fails the run.
func TestLedger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want     string // part of the error; "": none
		payloads [][]byte
		reported int
	}{
		{"", [][]byte{payload(1), payload(0)}, 2},
		{"1 tasks of 2 were reported", [][]byte{payload(0), payload(1)}, 1},
		{"task 0 was handed out twice", [][]byte{payload(0), payload(0)}, 2},
		{"never submitted", [][]byte{payload(0), payload(2)}, 2},
		{"never submitted", [][]byte{payload(0), []byte("1")}, 2},
		{"never submitted", [][]byte{payload(0), []byte("other")}, 2},
	} {
		var l ledger
		l.add(2)
		for _, p := range c.payloads {
			l.receive(p)
		}
		l.report(c.reported)
		if err := l.check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// TestLedger_Await shows that what is reported beyond one wait counts for the next.
func TestLedger_Await(t *testing.T) {
	t.Parallel()
	var l ledger
	first := l.await(2)
	l.report(1)
	select {
	case <-first:
		t.Fatal("2 tasks are reported after 1")
	default:
	}
	l.report(3)
	<-first
	<-l.await(2)
}
