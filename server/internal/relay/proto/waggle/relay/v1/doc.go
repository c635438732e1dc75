// Package relaypb has the messages by which dispatchers of one store pass calls to its owner; package relay sends and receives
// them. They are no part of the API.
package relaypb
