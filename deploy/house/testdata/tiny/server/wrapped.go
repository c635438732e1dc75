package server

// Recv is called by who has the stream.
func (w wrapped) Recv() error { return w.Stream.Recv() }
