// Package auth decides who may make which call.
//
// An identity is proved by a bearer token, a JWT, a client certificate or, on a Unix socket, by the user of the process.
// The policy file has the tokens, the issuers of JWTs, and the grants: which identity has which role, and for what. The
// roles of each method are in one table (method.go); a method without a row is refused. A [Guard] applies a policy to
// calls, and follows its files while they change.
package auth
