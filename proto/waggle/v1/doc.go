// Package wagglev1 is the gRPC API of Waggle, waggle.v1: what collectors, producers and operators call. The messages and
// services are generated from the .proto files beside them, whose comments are the reference; proto/README.md is the
// manual.
package wagglev1
