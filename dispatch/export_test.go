package dispatch

// MaxEndings is how many older sessions are ended at once.
const MaxEndings = maxEndings
