// Package wire is all that stands between the messages of waggle.v1 and the values of the domain. For one call, its
// checks and its conversion stand in one file, named for the call or for what it is about: a function takes the
// request and returns what the domain is asked for, or every field that is outside its limits. The other way, it makes
// the response.
//
// What all calls share: status.go has the checks of single fields and the table that maps errors to statuses,
// check.go the checks that only operators' calls need, page.go lists and their page tokens.
//
// Enums of the domain that have the numbers of the API are converted by number; a test compares them by name.
package wire
