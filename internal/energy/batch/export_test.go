package batch

// Unexported functions for tests in package batch_test.
var (
	JoinQuality = joinQuality
	Merge       = merge
)
