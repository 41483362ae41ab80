"""Algorithms on arrays: grouping, intervals, nesting, trees and statistics."""
