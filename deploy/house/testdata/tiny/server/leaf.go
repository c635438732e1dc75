package server

func plus(n int) int { return n + 1 }
