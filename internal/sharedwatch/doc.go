// Package sharedwatch keeps the recent events of a merged watch, which many watchers read.
//
// A Stream is the history: what Append adds, all its readers see in the same order. It is bounded by a number of entries and of bytes. It
// never waits for a reader: one that is outrun gets ErrOutrun and has to continue by itself, from the position that it has reached.
//
// A Reader begins at a position or after the event of an object. It sees every event that is after its beginning, once:
//
//   - A position has a revision for each cell. The history begins at one, too. If that is not above the position in any cell, all events
//     after the position are in the history or still to come. The reader leaves out those that the position includes.
//   - A watch that begins with the version of an object expects everything that could be caused by the object. The stream may have read a
//     later event of another cell before the object's own. Writes tells what is certain about the order of two writes. If all events that
//     precede the object's event in the stream are certain not to be caused by it, the reader begins right after it. Otherwise the caller
//     has to find a position.
package sharedwatch
