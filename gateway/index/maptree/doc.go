// Package maptree is the plain index: a tree with one node per block on ordinary Go maps, under one lock.
//
// It is the baseline that other indexes are measured against, and small enough to be read in one sitting.
// It does not try to be fast under many writers.
//
// The one idea to know: a node counts, per holder, how many of the holder's engine hashes name it. A
// holder has the block while its count is above zero, so two names for one block (twins) are one block,
// and taking one name away leaves it.
package maptree
