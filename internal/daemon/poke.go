package daemon

// Poke sends to a channel with a buffer of one unless a value is already pending. It does not block.
func Poke(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
