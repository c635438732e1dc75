package engine

func retry(try func() error) error {
	if try() == nil {
		return nil
	}
	return try()
}
