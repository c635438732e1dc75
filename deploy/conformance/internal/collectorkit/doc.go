// Package collectorkit judges a collector in any language by what a dispatcher sees of it.
//
// Each [Scenario] is a rule of the protocol manual. It runs one new process of the client program against dispatchers of
// its own: real gRPC servers that behave well, except where the scenario's script has them do something else. The script
// is Go that reads from top to bottom: what the dispatcher does, what must be seen, within what time. Beside it, each
// scenario keeps the rules that hold always (always.go).
//
// The files, in the order of reading: scenario.go (what a scenario is), fetch.go and its neighbors named for what they
// judge (the scenarios), kit.go (the words that scripts are written in), dispatcher.go (what a dispatcher does unless
// told otherwise), server.go (connections), client.go (the process under test).
package collectorkit
