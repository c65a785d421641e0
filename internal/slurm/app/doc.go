// Package app implements the program kubenergy-slurm: it parses the flags, and creates and runs the components.
package app
