"""SQuAD files, features, answers and scores."""
