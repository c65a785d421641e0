// Package forecast shows forecasts of a GridZone or a file, and measures how good they are.
package forecast
