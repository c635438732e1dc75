// Package server is the gRPC transport of a dispatcher: the five services of waggle.v1 with health and reflection on one
// listener, metrics and probes over HTTP on another, and the life of both from listening to a graceful end.
//
// A handler does three things and no more: it has internal/wire check the request and convert it, calls the dispatcher
// or the operator, and has internal/wire convert the answer. What all calls go through is in chain.go, with the order and
// its reasons. Which calls are let in is for internal/admit to decide; its policy.go has every method with its class.
// lifecycle.go has the order in which a server stops.
package server
