package ledger

// ErrClosed is exported for testing only.
var ErrClosed = errClosed
