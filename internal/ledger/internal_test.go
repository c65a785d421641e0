package ledger

// ErrClosed is what Book returns while the ledger is being closed.
var ErrClosed = errClosed
