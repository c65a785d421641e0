// Package record tells the controller what was decided and on what, so that every decision can be made again: by
// people it surprises, and with another strategy to see what that would have cost.
//
// Telling never stands in the way of deciding. Who decides hands over a copy and goes on; writing, compressing and
// sending is done by one goroutine. What waits for it is bounded: if the controller is away for long, the oldest
// records are lost and counted.
package record
