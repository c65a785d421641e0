package batch

// What the tests outside of the package look at.
var (
	JoinQuality = joinQuality
	Merge       = merge
)
