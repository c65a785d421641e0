// Package doctor implements the command doctor, which checks an installation and suggests fixes.
package doctor
