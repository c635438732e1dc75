// Package server is the gRPC transport of a dispatcher: the five services of
// waggle.v1 with health and reflection on one listener, metrics and probes over
// HTTP on another, and the life of both from listening to a graceful end.
//
// A handler does five things and no more: it validates the request, converts
// it, calls the [dispatch.Dispatcher], converts the answer, returns it. What
// handlers share is each in one place:
//
//   - chain.go: the order of the interceptors, and why it is that order
//   - policy.go: every method with the class that decides when it is shed
//   - validate.go, validate_source.go: every check of a request, of the checks
//     of single fields in checks.go
//   - status.go: every error of the domain with its status code and reason
//   - pagetoken.go: how page tokens are bound to the list they belong to
//   - lifecycle.go: the order in which a server stops
//
// It imports dispatch and the generated waggle.v1, and nothing else of this
// module.
package server
