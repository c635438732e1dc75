package script

// Code is the text of all scripts as it is loaded.
func Code(l *Library) string { return l.code }
