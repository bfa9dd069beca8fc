"""Sets of answers with a promise for every group, from opened histograms alone. No torch.

    promise           how many records a promise lets be missed, and how sure it is
    threshold         which bins are missed, or which record is the last that is not
    class_sets        classes in a set, by histograms of scores
    intervals         answers in an interval, by histograms of losses
    prediction_sets   sets as a value, and the words of a model's file
    set_maker         from an evaluation to the sets of its model, or why there are none

No public names.
"""
