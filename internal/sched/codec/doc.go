// Package codec encodes a snapshot so that each strategy decides the same on the decoded snapshot. Records of decisions
// contain it.
package codec
